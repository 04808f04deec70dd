// Does not compile: "write affecting operations on global resources are restricted to workgroup
// distributed contexts". %p adds up one term and becomes a multiplication, in the kernel of %d.
func.func @f(%w: tensor<8x8x6xf32>, %v: tensor<8x6xf32>, %c: tensor<3x1xf32>) -> tensor<64x3xf32> {
  %d = stablehlo.dot_general %w, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<8x8x6xf32>, tensor<8x6xf32>) -> tensor<8x8xf32>
  %t = stablehlo.transpose %d, dims = [1, 0] : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %a = stablehlo.reshape %t : (tensor<8x8xf32>) -> tensor<64x1xf32>
  %p = stablehlo.dot_general %a, %c, contracting_dims = [1] x [1] : (tensor<64x1xf32>, tensor<3x1xf32>) -> tensor<64x3xf32>
  return %p : tensor<64x3xf32>
}
