// Element 7 is x[0], and the others are 0; compiled, it is element 6. As in padded_between.mlir, the two
// paddings become one that leaves out the zeros between.
func.func @f(%x: tensor<1xf32>) -> tensor<12xf32> {
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.pad %x, %c, low = [1], high = [2], interior = [0] : (tensor<1xf32>, tensor<f32>) -> tensor<4xf32>
  %r = stablehlo.pad %a, %c, low = [5], high = [0], interior = [1] : (tensor<4xf32>, tensor<f32>) -> tensor<12xf32>
  return %r : tensor<12xf32>
}
