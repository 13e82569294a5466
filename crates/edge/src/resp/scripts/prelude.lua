-- What scripts find: libraries that they cannot change, and globals that they cannot make. Runs once in each Lua state.
local rust, sha_of = ...

local error, getmetatable, ipairs, next, pairs, pcall, rawequal, rawget, rawset, select, setmetatable, tonumber, tostring, type, unpack, xpcall =
  error, getmetatable, ipairs, next, pairs, pcall, rawequal, rawget, rawset, select, setmetatable, tonumber, tostring, type, unpack, xpcall
local string, table, math = string, table, math
local sub = string.sub

-- Functions of ours give whether it went well, and what came of it.
local function out(ok, ...)
  if ok then
    return ...
  end
  error((...), 3)
end

local function lift(f)
  return function(...)
    return out(f(...))
  end
end

local guarded = setmetatable({}, { __mode = "k" })

local function readonly(t)
  local proxy = setmetatable({}, {
    __index = t,
    __newindex = function()
      error("Attempt to modify a readonly table", 2)
    end,
    __metatable = false,
  })
  guarded[proxy] = true
  return proxy
end

local function library(t)
  local lifted = {}
  for name, f in pairs(t) do
    lifted[name] = lift(f)
  end
  return lifted
end

-- A script that was ended is not to catch its own end.
local function caught(ok, ...)
  if ok then
    return true, ...
  end
  if rust.is_ended() then
    error("the script was ended", 0)
  end
  -- As Redis has it: an error of a command is caught as its text.
  local e = ...
  if type(e) == "table" and type(rawget(e, "err")) == "string" then
    return false, e.err
  end
  return false, e
end

-- Lua's own would call the handler where no script can be ended: a handler without an end would have none.
local function handled(handler, ok, ...)
  if ok then
    return true, ...
  end
  return false, handler(...)
end

local scan = rust.scan

local function find(ok, from, to, ...)
  if not ok then
    error(from, 3)
  end
  return from, to, ...
end

local function matched(s, ok, from, to, ...)
  if not ok then
    error(from, 3)
  end
  if not from then
    return nil
  elseif select("#", ...) == 0 then
    return sub(s, from, to)
  end
  return ...
end

local function parts(ok, from, to, ...)
  if not ok then
    error(from, 4)
  end
  return from, to, select("#", ...), { ... }
end

string.find = function(s, p, init, plain)
  return find(scan(s, p, init, plain and 1 or 0))
end

string.match = function(s, p, init)
  return matched(s, scan(s, p, init, 2))
end

string.gmatch = function(s, p)
  local at = 1
  s = tostring(s)
  return function()
    if at > #s + 1 then
      return nil
    end
    local from, to, count, captures = parts(scan(s, p, at, 3))
    if not from then
      at = #s + 2
      return nil
    end
    at = to >= from and to + 1 or from + 1
    if count == 0 then
      return sub(s, from, to)
    end
    return unpack(captures, 1, count)
  end
end
string.gfind = nil

string.gsub = function(s, p, r, most)
  local kind = type(r)
  if kind == "string" or kind == "number" then
    return out(rust.replace(s, p, r, most))
  elseif kind ~= "table" and kind ~= "function" then
    error("bad argument #3 to 'gsub' (string/function/table expected)", 2)
  end
  s, p = tostring(s), tostring(p)
  local made, done, at, anchored = {}, 0, 1, sub(p, 1, 1) == "^"
  while not most or done < most do
    local from, to, count, captures = parts(scan(s, p, at, 2))
    if not from then
      break
    end
    done = done + 1
    made[#made + 1] = sub(s, at, from - 1)
    local whole, value = sub(s, from, to), nil
    if kind == "table" then
      value = r[count > 0 and captures[1] or whole]
    elseif count == 0 then
      value = r(whole)
    else
      value = r(unpack(captures, 1, count))
    end
    if not value then
      value = whole
    elseif type(value) ~= "string" and type(value) ~= "number" then
      error("invalid replacement value (a " .. type(value) .. ")", 2)
    end
    made[#made + 1] = value
    at = to + 1
    if to < from then
      if from > #s then
        at = from
        break
      end
      made[#made + 1] = sub(s, from, from)
      at = from + 1
    end
    if anchored then
      break
    end
  end
  made[#made + 1] = sub(s, at)
  return table.concat(made), done
end

string.rep = lift(rust.rep)
string.dump = nil

local function bounded_unpack(t, i, j)
  i, j = i or 1, j or #t
  if j - i >= 7999 then
    error("too many results to unpack", 2)
  end
  return unpack(t, i, j)
end

local redis = {
  call = function(...)
    local bad, value = rust.call(...)
    if bad then
      error(value, 0)
    end
    return value
  end,
  pcall = function(...)
    local _, value = rust.call(...)
    return value
  end,
  error_reply = function(...)
    local text = ...
    if select("#", ...) ~= 1 or type(text) ~= "string" then
      return { err = "ERR wrong number or type of arguments" }
    end
    if sub(text, 1, 1) == "-" then
      text = sub(text, 2)
    end
    text = rust.trim(text)
    if not string.find(text, " ", 1, true) then
      text = "ERR " .. text
    end
    return { err = text }
  end,
  status_reply = function(...)
    local text = ...
    if select("#", ...) ~= 1 or type(text) ~= "string" then
      return { err = "ERR wrong number or type of arguments" }
    end
    return { ok = text }
  end,
  sha1hex = function(...)
    if select("#", ...) ~= 1 then
      error({ err = "ERR wrong number of arguments" }, 0)
    end
    return sha_of(tostring((...)))
  end,
  log = function(level, ...)
    if select("#", ...) < 1 then
      error({ err = "ERR redis.log() requires two arguments or more." }, 0)
    end
    if type(level) ~= "number" then
      error({ err = "ERR First argument must be a number (log level)." }, 0)
    end
    if level < 0 or level > 3 then
      error({ err = "ERR Invalid debug level." }, 0)
    end
    rust.log(level, ...)
  end,
  setresp = function(...)
    local version = ...
    if select("#", ...) ~= 1 then
      error({ err = "ERR redis.setresp() requires one argument." }, 0)
    end
    if version ~= 2 and version ~= 3 then
      error({ err = "ERR RESP version must be 2 or 3." }, 0)
    end
    rust.setresp(version)
  end,
  replicate_commands = function()
    return true
  end,
  set_repl = function(...)
    if select("#", ...) ~= 1 then
      error({ err = "ERR redis.set_repl() requires one argument." }, 0)
    end
  end,
  breakpoint = function()
    return false
  end,
  debug = function() end,
  REPL_NONE = 0,
  REPL_AOF = 1,
  REPL_SLAVE = 2,
  REPL_REPLICA = 2,
  REPL_ALL = 3,
  LOG_DEBUG = 0,
  LOG_VERBOSE = 1,
  LOG_NOTICE = 2,
  LOG_WARNING = 3,
  REDIS_VERSION = rust.version,
  REDIS_VERSION_NUM = rust.version_num,
}

local cjson = library(rust.cjson)
cjson.null = rust.null
for _, name in ipairs({ "encode_sparse_array", "encode_max_depth", "decode_max_depth", "encode_number_precision", "encode_keep_buffer", "encode_invalid_numbers", "decode_invalid_numbers" }) do
  cjson[name] = function() end
end

local env = {}
local globals = {
  assert = assert,
  error = error,
  getmetatable = getmetatable,
  ipairs = ipairs,
  next = next,
  pairs = pairs,
  pcall = function(...)
    return caught(pcall(...))
  end,
  rawequal = rawequal,
  rawget = rawget,
  rawset = function(t, k, v)
    if guarded[t] then
      error("Attempt to modify a readonly table", 2)
    end
    return rawset(t, k, v)
  end,
  select = select,
  setmetatable = setmetatable,
  tonumber = tonumber,
  tostring = tostring,
  type = type,
  unpack = bounded_unpack,
  xpcall = function(f, handler)
    return handled(handler, caught(pcall(f)))
  end,
  _VERSION = _VERSION,
  _G = env,
  string = readonly(string),
  table = readonly(table),
  math = readonly(math),
  os = readonly({ clock = rust.clock }),
  redis = readonly(redis),
  cjson = readonly(cjson),
  cmsgpack = readonly(library(rust.cmsgpack)),
  struct = readonly(library(rust.struct)),
  bit = readonly(library(rust.bit)),
}
globals.server = globals.redis
getmetatable("").__metatable = false

setmetatable(env, {
  __index = function(_, name)
    local value = globals[name]
    if value == nil then
      error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
    end
    return value
  end,
  __newindex = function()
    error("Attempt to modify a readonly table", 2)
  end,
  __metatable = false,
})
guarded[env] = true

-- Runs a script: whether it went well, and what it returns; or its error as a table, with where it happened.
local function run(f, keys, argv)
  globals.KEYS, globals.ARGV = keys, argv
  local ok, value = xpcall(f, rust.where)
  globals.KEYS, globals.ARGV = nil, nil
  return ok, value
end

-- What a library registers while it is loaded.
local registering
local flags_known = { ["no-writes"] = true, ["allow-oom"] = true, ["allow-stale"] = true, ["no-cluster"] = true, ["allow-cross-slot-keys"] = true }

local function refuse(why)
  error({ err = "ERR " .. why }, 0)
end

local function is_flags(flags)
  if type(flags) ~= "table" then
    refuse("flags argument to redis.register_function must be a table representing function flags")
  end
  local all = {}
  for i, flag in ipairs(flags) do
    if type(flag) ~= "string" or not flags_known[flag] then
      refuse("unknown flag given")
    end
    all[i] = flag
  end
  return all
end

local function by_names(given)
  local made = { flags = {} }
  for key, value in pairs(given) do
    local kind = type(value)
    if key == "function_name" then
      if kind ~= "string" then
        refuse("function_name argument given to redis.register_function must be a string")
      end
      made.name = value
    elseif key == "description" then
      if kind ~= "string" then
        refuse("description argument given to redis.register_function must be a string")
      end
      made.description = value
    elseif key == "callback" then
      if kind ~= "function" then
        refuse("callback argument given to redis.register_function must be a function")
      end
      made.callback = value
    elseif key == "flags" then
      made.flags = is_flags(value)
    else
      refuse("unknown argument given to redis.register_function")
    end
  end
  if not made.name then
    refuse("redis.register_function must get a function name argument")
  elseif not made.callback then
    refuse("redis.register_function must get a callback argument")
  end
  return made
end

local function register(...)
  local count, first, second = select("#", ...), ...
  local made
  if not registering then
    refuse("redis.register_function can only be called on FUNCTION LOAD command")
  elseif count < 1 or count > 2 then
    refuse("wrong number of arguments to redis.register_function")
  elseif count == 1 then
    if type(first) ~= "table" then
      refuse("calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).")
    end
    made = by_names(first)
  elseif type(first) ~= "string" then
    refuse("first argument to redis.register_function must be a string")
  elseif type(second) ~= "function" then
    refuse("second argument to redis.register_function must be a function")
  else
    made = { name = first, callback = second, flags = {} }
  end
  if not string.find(made.name, "^[%w_]+$") or #made.name > 256 then
    refuse("Library names can only contain letters, numbers, or underscores(_) and must be at least one character long")
  end
  for _, other in ipairs(registering) do
    if other.name == made.name then
      refuse("Function already exists in the library")
    end
  end
  if #registering >= 1000 then
    refuse("a library has 1000 functions at most")
  end
  registering[#registering + 1] = made
end

local not_at_load = { call = true, pcall = true, setresp = true, set_repl = true, breakpoint = true, debug = true, replicate_commands = true }
local library_redis = setmetatable({}, {
  __index = function(_, name)
    if name == "register_function" then
      return register
    elseif registering and not_at_load[name] then
      error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
    end
    return redis[name]
  end,
  __newindex = function()
    error("Attempt to modify a readonly table", 2)
  end,
  __metatable = false,
})
guarded[library_redis] = true

local library_env = {}
setmetatable(library_env, {
  __index = function(_, name)
    local value = globals[name]
    if name == "redis" or name == "server" then
      return library_redis
    elseif name == "_G" then
      return library_env
    elseif value == nil then
      error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
    end
    return value
  end,
  __newindex = function()
    error("Attempt to modify a readonly table", 2)
  end,
  __metatable = false,
})
guarded[library_env] = true

local function load(f)
  registering = {}
  local ok, e = xpcall(f, rust.where)
  local made = registering
  registering = nil
  return ok, ok and made or e
end

local function call_one(f, keys, argv)
  return xpcall(function()
    return (f(keys, argv))
  end, rust.where)
end

return env, run, library_env, load, call_one
