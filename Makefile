# Each target is a script of scripts/; what they set up and leave alone is said there.
.PHONY: demo test up down images build bench lint fuzz

demo:   ; scripts/demo
test:   ; scripts/test
up:     ; scripts/up
down:   ; scripts/down
images: ; scripts/images
build:  ; scripts/build
bench:  ; scripts/bench
lint:   ; scripts/lint
fuzz:   ; scripts/fuzz
