import circle_b

NAME = circle_b.VALUE
