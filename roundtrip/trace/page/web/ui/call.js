// Operator sections of a call page, which are redrawn with each update.

drawPages();
document.addEventListener("drawn", () => {
  drawStored();
  drawFork();
  drawLog();
});
