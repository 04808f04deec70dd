// Does not compile: "LLVM Translation failed for operation: builtin.unrealized_conversion_cast".
// The reverse of a slice with a stride along the last axis.
func.func @reversed_slice(%x: tensor<3x8xf32>) -> tensor<3x4xf32> {
  %s = "stablehlo.slice"(%x) <{start_indices = array<i64: 0, 0>, limit_indices = array<i64: 3, 7>, strides = array<i64: 1, 2>}> : (tensor<3x8xf32>) -> tensor<3x4xf32>
  %r = "stablehlo.reverse"(%s) <{dimensions = array<i64: 0>}> : (tensor<3x4xf32>) -> tensor<3x4xf32>
  return %r : tensor<3x4xf32>
}
