// The parts of a call's page that operate it, which are drawn with each update of the call.

drawPages();
document.addEventListener("drawn", () => {
  drawStored();
  drawFork();
  drawLog();
});
