"""What each engine needs beside weights and KV cache, and how much of a GPU it takes.

One module per engine; ``kvcalc.budget`` turns their plans into the lines of a GPU's budget.
"""
