"""Speed and scale, measured (`make bench`): one module per group of rows, each figure with its bound and, where there is one, its peer."""
