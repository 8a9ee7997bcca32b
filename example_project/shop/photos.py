"""Photos of products, scaled down with Pillow."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

WIDTH = 480


def shrink(photo: str) -> tuple[str, tuple[int, int]]:
    """Write a small copy of `photo` (a name under MEDIA_ROOT); return its name and its size in pixels.

    The copy is written to another file and then renamed, so that no page ever shows an incomplete picture.
    """
    name = f"thumbnails/{Path(photo).stem}.jpg"
    # Imported here, because the shop also starts without Pillow: then only its photos fail.
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
