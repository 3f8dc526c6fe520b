"""Decodes JPEG files that come on stdin; run as a program of its own by `jpegs`, so it imports nothing of ours.

In: for each file its length (4 bytes, little-endian) and its bytes. Out: the RGB pixels of each. The arguments are
the width and the height that every image must have. A file that cannot be read ends the program with code 1
and its number and the reason on stderr.
"""

import io
import struct
import sys

from PIL import Image


def main() -> None:
    size = (int(sys.argv[1]), int(sys.argv[2]))
    number = 0
    while head := sys.stdin.buffer.read(4):
        data = sys.stdin.buffer.read(struct.unpack("<I", head)[0])
        try:
            with Image.open(io.BytesIO(data), formats=["JPEG"]) as image:
                if image.size != size:
                    raise ValueError(f"is {image.size[0]} x {image.size[1]} pixels, expected {size[0]} x {size[1]}")
                pixels = image.convert("RGB").tobytes()  # also of greyscale images
        except Exception as error:  # a broken file may raise anything
            sys.exit(f"{number} {' '.join(str(error).split())}")
        sys.stdout.buffer.write(pixels)
        number += 1


if __name__ == "__main__":
    main()
