"""The families of detectors, one file each: network, decoding, and what is particular in configs, keys and exports."""
