"""What a traced step takes on a machine: seconds of its operations and messages, part by part.

A StepTrace and a machine's speeds come in, a StepTime goes out; all of it is arithmetic. Read speeds first.
"""
