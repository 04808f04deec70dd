// Does not compile: "'linalg.generic' op write affecting operations on global resources are restricted
// to workgroup distributed contexts". The padding of what a scatter has replaced rows of.
func.func @f(%x: tensor<3x6xf32>, %i: tensor<1xi32>, %u: tensor<1x6xf32>) -> tensor<4x6xf32> {
  %s = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = true}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>): "stablehlo.return"(%b) : (tensor<f32>) -> ()
  }) : (tensor<3x6xf32>, tensor<1xi32>, tensor<1x6xf32>) -> tensor<3x6xf32>
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.pad %s, %c, low = [1, 0], high = [0, 0], interior = [0, 0] : (tensor<3x6xf32>, tensor<f32>) -> tensor<4x6xf32>
  return %y : tensor<4x6xf32>
}
