// Does not compile: "maximum iteration count exceeded in fixed point pipeline", before
// --compile-to=stream. Each function compiles alone, and so do both without the product of the iota.
func.func @constant(%x: tensor<3xi32>) -> tensor<3xi32> {
  %0 = "stablehlo.iota"() <{iota_dimension = 0 : i64}> : () -> tensor<3xi32>
  %1 = stablehlo.constant dense<16> : tensor<3xi32>
  %2 = stablehlo.multiply %0, %1 : tensor<3xi32>
  %3 = stablehlo.add %2, %x : tensor<3xi32>
  return %3 : tensor<3xi32>
}
func.func @loop() -> tensor<4x5xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %count = stablehlo.constant dense<4> : tensor<i32>
  %row = stablehlo.constant dense<0.0> : tensor<1x5xf32>
  %empty = tensor.empty() : tensor<4x5xf32>
  %w:2 = "stablehlo.while"(%zero, %empty) ({
  ^bb0(%i: tensor<i32>, %rows: tensor<4x5xf32>):
    %more = stablehlo.compare LT, %i, %count : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  }, {
  ^bb0(%i: tensor<i32>, %rows: tensor<4x5xf32>):
    %next = stablehlo.add %i, %one : tensor<i32>
    %new = stablehlo.dynamic_update_slice %rows, %row, %i, %zero : (tensor<4x5xf32>, tensor<1x5xf32>, tensor<i32>, tensor<i32>) -> tensor<4x5xf32>
    stablehlo.return %next, %new : tensor<i32>, tensor<4x5xf32>
  }) : (tensor<i32>, tensor<4x5xf32>) -> (tensor<i32>, tensor<4x5xf32>)
  %t = stablehlo.slice %w#1 [1:4, 0:5] : (tensor<4x5xf32>) -> tensor<3x5xf32>
  %y = stablehlo.concatenate %t, %row, dim = 0 : (tensor<3x5xf32>, tensor<1x5xf32>) -> tensor<4x5xf32>
  return %y : tensor<4x5xf32>
}
