// Does not compile: "LLVM Translation failed for operation: builtin.unrealized_conversion_cast".
// Rows of one column. The reverse of the column fails, too.
func.func @f(%x: tensor<8x12x3xf32>, %i: tensor<2xi32>) -> tensor<2x12x1xf32> {
  %s = stablehlo.slice %x [0:8, 0:12, 1:2] : (tensor<8x12x3xf32>) -> tensor<8x12x1xf32>
  %y = "stablehlo.gather"(%s, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 12, 1>}> : (tensor<8x12x1xf32>, tensor<2xi32>) -> tensor<2x12x1xf32>
  return %y : tensor<2x12x1xf32>
}
