// [x0, 0, x1, 0, x2] and a row of zeros: the second padding leaves out the zeros between.
func.func @f(%x: tensor<1x3xf32>) -> tensor<2x5xf32> {
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.pad %x, %c, low = [0, 0], high = [0, 0], interior = [0, 1] : (tensor<1x3xf32>, tensor<f32>) -> tensor<1x5xf32>
  %r = stablehlo.pad %a, %c, low = [0, 0], high = [1, 0], interior = [0, 0] : (tensor<1x5xf32>, tensor<f32>) -> tensor<2x5xf32>
  return %r : tensor<2x5xf32>
}
