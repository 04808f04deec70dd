// Does not compile: 'linalg.pack' op expected padding_value has 'i8' but got: 'i1'.
func.func @f(%x: tensor<3x4xf32>, %y: tensor<4x5xf32>, %m: tensor<5xi1>) -> tensor<3x5xf32> {
  %p = stablehlo.dot %x, %y : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
  %k = stablehlo.broadcast_in_dim %m, dims = [1] : (tensor<5xi1>) -> tensor<3x5xi1>
  %c = stablehlo.constant dense<-1.0> : tensor<3x5xf32>
  %r = stablehlo.select %k, %p, %c : tensor<3x5xi1>, tensor<3x5xf32>
  return %r : tensor<3x5xf32>
}
