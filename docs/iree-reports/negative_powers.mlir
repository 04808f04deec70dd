// (-2)^4, 0^0 and 1^inf are NaN instead of 16, 1 and 1.
func.func @f(%x: tensor<3xf32>, %y: tensor<3xf32>) -> tensor<3xf32> {
  %r = stablehlo.power %x, %y : tensor<3xf32>
  return %r : tensor<3xf32>
}
