// Silently wrong in the second matrix, as packed_rows.mlir: the transposition and the merged rows of
// %x are packed together, and the padding of 15 rows is filled with those of the next matrix.
func.func @f(%x: tensor<3x2x5x3xbf16>, %y: tensor<2x3x3xbf16>) -> tensor<2x5x3x3xf32> {
  %a = "iree_tensor_ext.compute_barrier.start"(%x) : (tensor<3x2x5x3xbf16>) -> tensor<3x2x5x3xbf16>
  %b = "iree_tensor_ext.compute_barrier.start"(%y) : (tensor<2x3x3xbf16>) -> tensor<2x3x3xbf16>
  %r = stablehlo.dot_general %a, %b, batching_dims = [1] x [0], contracting_dims = [0] x [2] : (tensor<3x2x5x3xbf16>, tensor<2x3x3xbf16>) -> tensor<2x5x3x3xf32>
  return %r : tensor<2x5x3x3xf32>
}
