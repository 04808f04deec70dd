// Does not compile: "Both operands to a binary operator are not of the same type!", and with other
// shapes "failed to translate the MLIR LLVM dialect". A depthwise convolution of converted f16.
func.func @narrow_groups(%x: tensor<24x3x4xf16>, %w: tensor<3x1x1xf16>) -> tensor<24x3x2xf16> {
  %a = stablehlo.convert %x : (tensor<24x3x4xf16>) -> tensor<24x3x4xf32>
  %b = stablehlo.convert %w : (tensor<3x1x1xf16>) -> tensor<3x1x1xf32>
  %c = "stablehlo.convolution"(%a, %b) <{dimension_numbers = #stablehlo.conv<[b, f, 0]x[o, i, 0]->[b, f, 0]>, window_strides = array<i64: 3>, feature_group_count = 3 : i64, batch_group_count = 1 : i64}> : (tensor<24x3x4xf32>, tensor<3x1x1xf32>) -> tensor<24x3x2xf32>
  %y = stablehlo.convert %c : (tensor<24x3x2xf32>) -> tensor<24x3x2xf16>
  return %y : tensor<24x3x2xf16>
}
