// Silently wrong: the first result is computed from %x after the scatter has updated it in place.
// Without the third result, which depends on nothing here, the order is right.
func.func @f(%a: tensor<1x4xf32>, %b: tensor<12x1x4xf32>, %i: tensor<1xi32>, %u: tensor<1x4xf32>, %h: tensor<9x3x12xf16>) -> (tensor<12x1x4xf32>, tensor<1x4xf32>, tensor<9x3x12xf16>) {
  %x = stablehlo.exponential %a : tensor<1x4xf32>
  %w = stablehlo.broadcast_in_dim %x, dims = [1, 2] : (tensor<1x4xf32>) -> tensor<12x1x4xf32>
  %y = stablehlo.subtract %w, %b : tensor<12x1x4xf32>
  %z = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %s = stablehlo.add %p, %q : tensor<f32>
      stablehlo.return %s : tensor<f32>
  }) : (tensor<1x4xf32>, tensor<1xi32>, tensor<1x4xf32>) -> tensor<1x4xf32>
  %c = stablehlo.constant dense<0.5> : tensor<9x3x12xf16>
  %g = stablehlo.multiply %h, %c : tensor<9x3x12xf16>
  %k = stablehlo.optimization_barrier %y : tensor<12x1x4xf32>
  return %k, %z, %g : tensor<12x1x4xf32>, tensor<1x4xf32>, tensor<9x3x12xf16>
}
