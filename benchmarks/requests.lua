-- Send one request again and again, each time with a new id, and count the responses that are not right.
-- Arguments: the body, with "%d" where the id is; text that every right response has; names and values of headers.

local threads = {}

function setup(thread)
   table.insert(threads, thread)
end

function init(args)
   body, expected = args[1], args[2]
   wrk.method = "POST"
   for at = 3, #args, 2 do
      wrk.headers[args[at]] = args[at + 1]
   end
   sent, wrong, example = 0, 0, ""
end

function request()
   sent = sent + 1
   return wrk.format(nil, nil, nil, (body:gsub("%%d", sent)))
end

function response(status, headers, text)
   if status ~= 200 or not text:find(expected, 1, true) then
      wrong = wrong + 1
      example = status .. " " .. text:sub(1, 300)
   end
end

function done(summary, latency, requests)
   local errors = summary.errors
   local failed = errors.connect + errors.read + errors.write + errors.timeout
   for _, thread in ipairs(threads) do
      failed = failed + thread:get("wrong")
      print("example " .. thread:get("example"))
   end
   print(string.format("result %d %d %d", summary.requests, summary.duration, failed))
end
