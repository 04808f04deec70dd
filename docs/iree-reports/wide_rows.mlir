// Does not compile: %s is computed in the dispatch that adds up each row of 1024 values, reads the row again, and packs
// what it makes of it for the product.
func.func @f(%x: tensor<256x1024xf32>, %y: tensor<256x1024xf32>, %w: tensor<1024x64xf32>) -> tensor<256x64xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.add %x, %y : tensor<256x1024xf32>
  %r = stablehlo.reduce(%s init: %z) applies stablehlo.add across dimensions = [1] : (tensor<256x1024xf32>, tensor<f32>) -> tensor<256xf32>
  %m = stablehlo.broadcast_in_dim %r, dims = [0] : (tensor<256xf32>) -> tensor<256x1024xf32>
  %a = stablehlo.subtract %s, %m : tensor<256x1024xf32>
  %q = stablehlo.multiply %a, %a : tensor<256x1024xf32>
  %v = stablehlo.reduce(%q init: %z) applies stablehlo.add across dimensions = [1] : (tensor<256x1024xf32>, tensor<f32>) -> tensor<256xf32>
  %n = stablehlo.broadcast_in_dim %v, dims = [0] : (tensor<256xf32>) -> tensor<256x1024xf32>
  %o = stablehlo.divide %a, %n : tensor<256x1024xf32>
  %d = stablehlo.dot_general %o, %w, contracting_dims = [1] x [0] : (tensor<256x1024xf32>, tensor<1024x64xf32>) -> tensor<256x64xf32>
  %e = stablehlo.dot_general %s, %w, contracting_dims = [1] x [0] : (tensor<256x1024xf32>, tensor<1024x64xf32>) -> tensor<256x64xf32>
  %f = stablehlo.add %d, %e : tensor<256x64xf32>
  return %f : tensor<256x64xf32>
}
