// Rows of x by their numbers, as a product with rows of an identity, are negated: true becomes -1.
func.func @f(%x: tensor<8x4xf32>, %rows: tensor<3xi32>) -> tensor<3x4xf32> {
  %i = stablehlo.iota dim = 1 : tensor<3x8xi32>
  %b = stablehlo.broadcast_in_dim %rows, dims = [0] : (tensor<3xi32>) -> tensor<3x8xi32>
  %e = stablehlo.compare EQ, %i, %b : (tensor<3x8xi32>, tensor<3x8xi32>) -> tensor<3x8xi1>
  %o = stablehlo.convert %e : (tensor<3x8xi1>) -> tensor<3x8xf32>
  %r = stablehlo.dot_general %o, %x, contracting_dims = [1] x [0] : (tensor<3x8xf32>, tensor<8x4xf32>) -> tensor<3x4xf32>
  return %r : tensor<3x4xf32>
}
