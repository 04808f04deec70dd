// The compiler ends with a segmentation fault in linalg::PackOp::getResultShape, called from
// MaterializeOperation<tensor::EmptyOp>: the operand's encoding has a map without the rows.
func.func @main(%x: tensor<2xf32>, %w: tensor<6x2xf32>) -> tensor<5x6xf32> {
  %rows = "stablehlo.broadcast_in_dim"(%x) <{broadcast_dimensions = array<i64: 1>}> : (tensor<2xf32>) -> tensor<5x2xf32>
  %y = "stablehlo.dot_general"(%rows, %w) <{dot_dimension_numbers = #stablehlo.dot<
    lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>}>
    : (tensor<5x2xf32>, tensor<6x2xf32>) -> tensor<5x6xf32>
  return %y : tensor<5x6xf32>
}
