// cos(131072) is 0.0421, compiled it is 0.0384; the cosine of 3.4e38 is -inf.
func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {
  %r = stablehlo.cosine %x : tensor<2xf32>
  return %r : tensor<2xf32>
}
