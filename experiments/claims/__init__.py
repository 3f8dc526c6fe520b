"""The theory of FedEBA+ as experiments: what the paper proves, computed for many small federations."""
