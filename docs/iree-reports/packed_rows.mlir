// A batched product whose left operand is computed: packing moves above the reshape
// of (2 * 3, 3) to (2, 3, 3), and rows of the second matrix fill the padding of the first.
func.func @f(%w: tensor<2x3x3xf32>, %v: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%w init: %c) applies stablehlo.add across dimensions = [2] : (tensor<2x3x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  %b = stablehlo.broadcast_in_dim %s, dims = [0, 1] : (tensor<2x3xf32>) -> tensor<2x3x3xf32>
  %p = stablehlo.divide %w, %b : tensor<2x3x3xf32>
  %r = stablehlo.dot_general %p, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x3x3xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  return %r : tensor<2x3x4xf32>
}
