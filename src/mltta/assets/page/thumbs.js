// Thumbnails of the photos in view: a few are made at a time, and the oldest are discarded.

const SIDE = 320, KEPT = 300, AT_ONCE = 3;
const made = new Map(), wanted = [];
let working = 0;

export function thumb(photo, image, unseen) {
  const url = made.get(photo);
  if (url) {
    made.delete(photo);  // the most recently used are last
    made.set(photo, url);
    image.src = url;
    return;
  }
  wanted.push({ photo, image, unseen });
  work();
}

async function work() {
  if (working >= AT_ONCE) return;
  working++;
  while (wanted.length) {
    const { photo, image, unseen } = wanted.pop();  // the last requests are in view
    if (!image.isConnected) continue;
    try {
      if (!made.has(photo)) keep(photo, URL.createObjectURL(await shrink(photo.file)));
      image.src = made.get(photo);
    } catch {  // the browser cannot show this format
      unseen();
    }
  }
  working--;
}

async function shrink(file) {
  const whole = await createImageBitmap(file);
  const scale = Math.min(1, SIDE / Math.min(whole.width, whole.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.min(4 * SIDE, Math.round(whole.width * scale)));
  canvas.height = Math.max(1, Math.min(4 * SIDE, Math.round(whole.height * scale)));
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(whole, 0, 0, canvas.width, canvas.height);
  whole.close();
  return new Promise((done, fail) => canvas.toBlob((blob) => blob ? done(blob) : fail(), "image/webp", 0.8));
}

function keep(photo, url) {
  made.set(photo, url);
  for (const [oldest, old] of made) {
    if (made.size <= KEPT) break;
    URL.revokeObjectURL(old);
    made.delete(oldest);
  }
}

export function forget() {
  for (const url of made.values()) URL.revokeObjectURL(url);
  made.clear();
  wanted.length = 0;
}
