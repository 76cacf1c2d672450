"""The pages *Serving*, *Layers* and *Graphs*: steps of inference engines and replayed graphs."""
