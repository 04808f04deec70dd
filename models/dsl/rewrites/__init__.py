"""Rewrites of traced graphs.

rewrite         patterns, and rules that replace parts of a graph
kernel_rules    the table of rules: which parts of a graph have a C kernel
stored_weights  the weights as they are stored, and the rules that read them so
stacked_heads   one product in place of the products for queries, keys and values
merged_slices   slices of slices as one
row_blocks      long ops divided into blocks of rows, head_blocks into blocks of heads
"""
