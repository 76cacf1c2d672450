"""What a step would gain: the recording, replayed with changed durations."""
