"""Photos of products: shrinking them with Pillow."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

WIDTH = 480


def shrink(photo: str) -> tuple[str, tuple[int, int]]:
    """Write a small copy of `photo` (a name under MEDIA_ROOT); return its name and its size in pixels.

    Written beside and moved into place, so that no page ever shows half a picture.
    """
    name = f"thumbnails/{Path(photo).stem}.jpg"
    # Here, because the shop opens without Pillow, too: only its photos then fail.
    from PIL import Image, ImageOps

    target = settings.MEDIA_ROOT / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(settings.MEDIA_ROOT / photo) as image:
        small = ImageOps.exif_transpose(image).convert("RGB")
        small.thumbnail((WIDTH, WIDTH), Image.Resampling.LANCZOS)
        part = target.with_suffix(".part")
        small.save(part, "JPEG", quality=85, optimize=True)
        part.replace(target)
    return name, small.size
