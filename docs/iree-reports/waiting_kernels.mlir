// Does not compile: "failed to schedule execution partitions without cyclic dependencies". %n and %a
// become one kernel, %u and %b another one, and each reads what the other one writes.
func.func @f(%x: tensor<16x5xf32>, %w: tensor<5x7xf32>, %g: tensor<16x7xf32>) -> (tensor<16x5xf32>, tensor<16x7xf32>) {
  %n = stablehlo.exponential %x : tensor<16x5xf32>
  %p = stablehlo.dot_general %n, %w, contracting_dims = [1] x [0] : (tensor<16x5xf32>, tensor<5x7xf32>) -> tensor<16x7xf32>
  %y = "iree_tensor_ext.compute_barrier.start"(%p) : (tensor<16x7xf32>) -> tensor<16x7xf32>
  %u = stablehlo.exponential %g : tensor<16x7xf32>
  %q = stablehlo.dot_general %u, %w, contracting_dims = [1] x [1] : (tensor<16x7xf32>, tensor<5x7xf32>) -> tensor<16x5xf32>
  %z = "iree_tensor_ext.compute_barrier.start"(%q) : (tensor<16x5xf32>) -> tensor<16x5xf32>
  %a = stablehlo.multiply %z, %n : tensor<16x5xf32>
  %b = stablehlo.multiply %u, %y : tensor<16x7xf32>
  return %a, %b : tensor<16x5xf32>, tensor<16x7xf32>
}
