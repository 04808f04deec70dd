// Does not compile: "'linalg.generic' op write affecting operations on global resources are restricted
// to workgroup distributed contexts". The sum %s leads to two paddings.
func.func @f(%x: tensor<6x16xf32>, %u: tensor<6x16xf32>, %v: tensor<6x16xf32>) -> tensor<7x17xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %o = stablehlo.constant dense<0.0> : tensor<6x16xf32>
  %m = stablehlo.compare EQ, %u, %v : (tensor<6x16xf32>, tensor<6x16xf32>) -> tensor<6x16xi1>
  %s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1] : (tensor<6x16xf32>, tensor<f32>) -> tensor<6xf32>
  %b = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<6xf32>) -> tensor<6x16xf32>
  %c = stablehlo.select %m, %o, %b : tensor<6x16xi1>, tensor<6x16xf32>
  %p = stablehlo.pad %c, %z, low = [1, 0], high = [0, 0], interior = [0, 0] : (tensor<6x16xf32>, tensor<f32>) -> tensor<7x16xf32>
  %q = stablehlo.pad %b, %z, low = [0, 0], high = [1, 0], interior = [0, 0] : (tensor<6x16xf32>, tensor<f32>) -> tensor<7x16xf32>
  %a = stablehlo.add %p, %q : tensor<7x16xf32>
  %y = stablehlo.pad %a, %z, low = [0, 1], high = [0, 0], interior = [0, 0] : (tensor<7x16xf32>, tensor<f32>) -> tensor<7x17xf32>
  return %y : tensor<7x17xf32>
}
