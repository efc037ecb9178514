"""Speed against peers, as ratios from one run (`make bench`)."""
