// The second result must be the argument as it was; it is the updated one, and so is the
// caller's buffer.
func.func @f(%x: tensor<5x3xf32>, %i: tensor<2xi32>, %u: tensor<2x3xf32>) -> (tensor<5x3xf32>, tensor<5x3xf32>) {
  %y = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = true}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>): "stablehlo.return"(%b) : (tensor<f32>) -> ()
  }) : (tensor<5x3xf32>, tensor<2xi32>, tensor<2x3xf32>) -> tensor<5x3xf32>
  return %y, %x : tensor<5x3xf32>, tensor<5x3xf32>
}
