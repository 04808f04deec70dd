// Does not compile: %a is computed in the dispatch of the product with a vector, and written
// there for the other result.
func.func @f(%x: tensor<2x11xf32>, %y: tensor<2x1xf32>) -> (tensor<1x11xf32>, tensor<2x11xf32>) {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %m = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1] : (tensor<2x11xf32>, tensor<f32>) -> tensor<2xf32>
  %b = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<2xf32>) -> tensor<2x11xf32>
  %a = stablehlo.divide %x, %b : tensor<2x11xf32>
  %d = stablehlo.dot_general %y, %a, contracting_dims = [0] x [0] : (tensor<2x1xf32>, tensor<2x11xf32>) -> tensor<1x11xf32>
  %c = stablehlo.divide %a, %b : tensor<2x11xf32>
  return %d, %a : tensor<1x11xf32>, tensor<2x11xf32>
}
