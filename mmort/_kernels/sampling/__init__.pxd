"""Maps read at positions: grid_sample, deformable attention, CARAFE."""
