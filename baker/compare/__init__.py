"""`ab`: is a bundle's answer the answer of llama.cpp, and if not, which part differs?"""
