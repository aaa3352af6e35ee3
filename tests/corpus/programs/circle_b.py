from circle_a import NAME

VALUE = NAME
