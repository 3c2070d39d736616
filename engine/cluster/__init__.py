"""One model over several ranks, on one machine or several: ``mlx.launch`` starts them, and mlx-lm shards the model.

The launcher's exit code says nothing (it is 0 even if a rank was killed), and a rank that stands still leaves all the
others waiting forever. So a supervisor reads what the ranks report: a job has succeeded once each rank has reported the
digest of its tokens and all digests are the same. A job without progress is ended.
"""
