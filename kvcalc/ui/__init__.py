"""The page. It draws what the core computed and computes nothing itself; the only place that imports streamlit."""
