// With x[0, :, 1] infinite, the results must be sums of x[0, :, 0] and x[0, :, 2]; they are NaN.
func.func @f(%x: tensor<1x4x3xf32>, %w: tensor<2x2x2xf32>) -> tensor<1x2x1xf32> {
  %y = "stablehlo.convolution"(%x, %w) <{dimension_numbers = #stablehlo.conv<[b, f, 0]x[o, i, 0]->[b, f, 0]>, window_strides = array<i64: 1>, rhs_dilation = array<i64: 2>, feature_group_count = 2 : i64, batch_group_count = 1 : i64}> : (tensor<1x4x3xf32>, tensor<2x2x2xf32>) -> tensor<1x2x1xf32>
  return %y : tensor<1x2x1xf32>
}
