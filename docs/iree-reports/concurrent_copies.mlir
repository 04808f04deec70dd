// Two copies into %c and the copy of its first row out of it run at the same time.
func.func @f(%x: tensor<128xf32>, %w: tensor<5x64xf32>) -> (tensor<1x5xf32>, tensor<128xf32>) {
  %y = stablehlo.cosine %x : tensor<128xf32>
  %s = stablehlo.slice %y [64:128] : (tensor<128xf32>) -> tensor<64xf32>
  %t = stablehlo.reshape %s : (tensor<64xf32>) -> tensor<1x64xf32>
  %c = stablehlo.concatenate %t, %t, dim = 0 : (tensor<1x64xf32>, tensor<1x64xf32>) -> tensor<2x64xf32>
  %z = stablehlo.dot_general %c, %w, contracting_dims = [1] x [1] : (tensor<2x64xf32>, tensor<5x64xf32>) -> tensor<2x5xf32>
  %r = stablehlo.slice %z [0:1, 0:5] : (tensor<2x5xf32>) -> tensor<1x5xf32>
  return %r, %y : tensor<1x5xf32>, tensor<128xf32>
}
