// Does not compile: "'linalg.generic' op write affecting operations on global resources are restricted
// to workgroup distributed contexts". A scatter that replaces rows of a slice.
func.func @f(%x: tensor<3x6xf32>, %i: tensor<1xi32>, %u: tensor<1x6xf32>) -> tensor<2x6xf32> {
  %s = stablehlo.slice %x [0:2, 0:6] : (tensor<3x6xf32>) -> tensor<2x6xf32>
  %y = "stablehlo.scatter"(%s, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = true}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>): "stablehlo.return"(%b) : (tensor<f32>) -> ()
  }) : (tensor<2x6xf32>, tensor<1xi32>, tensor<1x6xf32>) -> tensor<2x6xf32>
  return %y : tensor<2x6xf32>
}
