#!/bin/sh -e
# The packages, and the source of the same Django, whose tests are not in its package.
python3 -m pip install --quiet --target packages -r requirements.txt
python3 -m pip download --quiet --no-deps --no-binary django --dest source "$(grep ^django requirements.txt)"
tar -xzf source/*.tar.gz -C source
