// Does not compile: "'vector.contract' op invalid accumulator/result vector shape". The sum over all
// axes of a product with a broadcast becomes a contraction whose first axis is reduced, and is an
// axis of one operand only.
func.func @f(%x: tensor<7xf32>, %g: tensor<2x7xf32>) -> tensor<f32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<7xf32>) -> tensor<2x7xf32>
  %m = stablehlo.multiply %y, %g : tensor<2x7xf32>
  %a = stablehlo.reduce(%m init: %z) applies stablehlo.add across dimensions = [0, 1] : (tensor<2x7xf32>, tensor<f32>) -> tensor<f32>
  return %a : tensor<f32>
}
