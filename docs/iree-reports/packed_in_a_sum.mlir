// Does not compile: %a is packed for the product in the dispatch that sums all of it.
func.func @f(%x: tensor<6x9x4xf32>, %y: tensor<6x2x9xbf16>) -> (tensor<9x2x4xf32>, tensor<f32>) {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.convert %x : (tensor<6x9x4xf32>) -> tensor<6x9x4xbf16>
  %b = stablehlo.convert %a : (tensor<6x9x4xbf16>) -> tensor<6x9x4xf32>
  %s = stablehlo.reduce(%b init: %z) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<6x9x4xf32>, tensor<f32>) -> tensor<f32>
  %d = stablehlo.dot_general %y, %a, batching_dims = [2] x [1], contracting_dims = [0] x [0] : (tensor<6x2x9xbf16>, tensor<6x9x4xbf16>) -> tensor<9x2x4xf32>
  return %d, %s : tensor<9x2x4xf32>, tensor<f32>
}
