// Runs before a page's own scripts: notes which elements listen to the mouse.
(() => {
  const heard = new WeakSet();
  const add = EventTarget.prototype.addEventListener;
  EventTarget.prototype.addEventListener = function (kind, ...rest) {
    if (["click", "mousedown", "mouseup", "dblclick"].includes(kind)) heard.add(this ?? window);
    return add.call(this, kind, ...rest);
  };
  Object.defineProperty(window, "__listens", { value: (element) => heard.has(element) });
})();
