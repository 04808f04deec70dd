// The compiler ends with a segmentation fault in linalg::PackOp::getResultShape, as with
// repeated_rows.mlir: a convolution of single elements becomes a product.
func.func @f(%x: tensor<4x3x3xf32>, %w: tensor<4xf32>) -> tensor<2x3x3xf32> {
  %a = stablehlo.transpose %x, dims = [1, 0, 2] : (tensor<4x3x3xf32>) -> tensor<3x4x3xf32>
  %r = stablehlo.broadcast_in_dim %w, dims = [1] : (tensor<4xf32>) -> tensor<2x4x1xf32>
  %c = "stablehlo.convolution"(%a, %r) <{dimension_numbers = #stablehlo.conv<[b, f, 0]x[o, i, 0]->[b, f, 0]>, window_strides = array<i64: 1>, feature_group_count = 1 : i64, batch_group_count = 1 : i64}> : (tensor<3x4x3xf32>, tensor<2x4x1xf32>) -> tensor<3x2x3xf32>
  %y = stablehlo.transpose %c, dims = [1, 0, 2] : (tensor<3x2x3xf32>) -> tensor<2x3x3xf32>
  return %y : tensor<2x3x3xf32>
}
