// Does not compile: "failed to legalize operation 'stablehlo.negate'". The product of one term becomes
// a multiplication of converted operands; %b is that conversion, put in front of the reshape, and
// the negation reads it in the shape of %x.
func.func @f(%x: tensor<7x11xbf16>, %y: tensor<1xbf16>) -> (tensor<11x7x1xf32>, tensor<11x7xf32>) {
  %a = stablehlo.reshape %x : (tensor<7x11xbf16>) -> tensor<11x7x1xbf16>
  %b = stablehlo.convert %a : (tensor<11x7x1xbf16>) -> tensor<11x7x1xf32>
  %c = stablehlo.negate %b : tensor<11x7x1xf32>
  %d = stablehlo.dot_general %a, %y, contracting_dims = [2] x [0] : (tensor<11x7x1xbf16>, tensor<1xbf16>) -> tensor<11x7xf32>
  return %c, %d : tensor<11x7x1xf32>, tensor<11x7xf32>
}
